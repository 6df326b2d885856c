from timesheet import Sheet

alice = Sheet("Alice")
alice.add(7, 45)
alice.add(6, 50)

bob = Sheet("Bob")
bob.add(8, 0)

for sheet in (alice, bob):
    print(f"{sheet.name}: {sheet.total()}")
