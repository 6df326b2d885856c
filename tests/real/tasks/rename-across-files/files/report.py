from users import get_user as name_of, get_user_count


def report(numbers):
    lines = [f"{number}: {name_of(number)}" for number in numbers]
    lines.append(f"{get_user_count()} users")
    return "\n".join(lines)
