from timesheet import Sheet


def total(*entries):
    sheet = Sheet("Carol")
    for hours, minutes in entries:
        sheet.add(hours, minutes)
    return sheet.total()


assert total() == "0:00", "a sheet does not begin empty"
assert total((1, 5)) == "1:05", "minutes have two digits"
assert total((0, 30), (0, 30)) == "1:00"
assert total((0, 59), (0, 59), (0, 59)) == "2:57", "more than one hour of minutes"
assert total((30, 0), (0, 61)) == "31:01"
sheet = Sheet("Dave", [(1, 30), (2, 15)])
sheet.add(0, 20)
assert sheet.total() == "4:05", "entries that are given count, too"
assert sheet.entries == [(1, 30), (2, 15), (0, 20)], "the entries themselves stay"
