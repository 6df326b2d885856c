import unittest

from shop import checkout


class CheckoutTest(unittest.TestCase):
    def test_a_small_order_is_shipped_for_money(self):
        self.assertEqual(checkout([("Pen", 199, 2)]), "Pen x 2: 3.98\nShipping: 4.90\nTotal: 8.88")

    def test_a_large_order_is_shipped_for_nothing(self):
        self.assertEqual(checkout([("Chair", 6000, 1)]), "Chair x 1: 60.00\nTotal: 60.00")


if __name__ == "__main__":
    unittest.main()
