"""Working hours."""


class Sheet:
    """What one person has worked: pairs of hours and minutes."""

    def __init__(self, name, entries=[]):
        self.name = name
        self.entries = entries

    def add(self, hours, minutes):
        self.entries.append((hours, minutes))

    def total(self):
        """Returns the sum in hours and minutes, such as 12:05."""
        hours = sum(entry[0] for entry in self.entries)
        minutes = sum(entry[1] for entry in self.entries)
        return f"{hours}:{minutes:02}"
