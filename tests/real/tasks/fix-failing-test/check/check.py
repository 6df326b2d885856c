from slug import slug

cases = {
    "News": "news",
    "Hello, world!": "hello-world",
    "  Rain   again ": "rain-again",
    "Top 10: what's new?": "top-10-what-s-new",
    "(1 - 2) -- 3": "1-2-3",
    "snake_case": "snake-case",
    "Übergröße": "übergröße",
    "北京 2024": "北京-2024",
    "?!": "",
}
for title, expected in cases.items():
    assert slug(title) == expected, f"slug({title!r}) is {slug(title)!r}"
