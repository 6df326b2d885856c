import ast

import shop


def before(items, code=""):
    lines, total = [], 0
    for name, price, number in items:
        amount = price * number
        if number >= 10:
            amount -= amount // 10
        total += amount
        lines.append(f"{name} x {number}: {amount / 100:.2f}")
    if code == "SPRING":
        total -= total // 5
        lines.append("Code SPRING: a fifth off")
    if total < 5000:
        total += 490
        lines.append("Shipping: 4.90")
    lines.append(f"Total: {total / 100:.2f}")
    return "\n".join(lines)


for price in (0, 1, 99, 199, 500, 501, 555, 625, 6249, 6250):
    for number in (1, 9, 10, 11):
        for code in ("", "SPRING", "WINTER"):
            for items in ([], [("A", price, number)], [("A", price, number), ("B", 333, 12)]):
                assert shop.checkout(items, code) == before(items, code), (items, code)
assert [shop.line_amount(199, 2), shop.line_amount(99, 10), shop.line_amount(5, 11)] == [398, 891, 50]
assert [shop.shipping(0), shop.shipping(4999), shop.shipping(5000)] == [490, 490, 0]

tree = ast.parse(open("shop.py", encoding="utf-8").read())
checkout = next(part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "checkout")
calls = [part.func for part in ast.walk(checkout) if isinstance(part, ast.Call)]
called = {function.id for function in calls if isinstance(function, ast.Name)}
assert {"line_amount", "shipping"} <= called, "checkout does not call them"
numbers = {part.value for part in ast.walk(checkout) if isinstance(part, ast.Constant)}
assert not numbers & {10, 490, 5000}, "checkout still calculates itself"
