import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_one_word(self):
        self.assertEqual(slug("News"), "news")

    def test_words_are_joined(self):
        self.assertEqual(slug("Seven new birds"), "seven-new-birds")

    def test_punctuation_goes(self):
        self.assertEqual(slug("Hello, world!"), "hello-world")

    def test_spaces_at_the_ends_go(self):
        self.assertEqual(slug("  Rain   again "), "rain-again")


if __name__ == "__main__":
    unittest.main()
