from calc import add, double
from till import total

assert [add(2, 3), add(-1, 1), add(0, -7), add(0.5, 0.25)] == [5, 0, -7, 0.75], "add does not add"
assert double(4) == 8, "double has changed"
assert [total([]), total([5]), total([200, 350])] == [0, 5, 550], "the total is wrong"
