"""The receipts of a small shop. All amounts are in cents."""


def checkout(items, code=""):
    """Returns a receipt for items, which are tuples of a name, a price and a number."""
    lines = []
    total = 0
    for name, price, number in items:
        amount = price * number
        # Ten and more are a tenth cheaper, rounded in favour of the shop.
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
