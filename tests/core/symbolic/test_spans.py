"""Points of a set from the first to the last."""

import islpy as isl
import pytest

from tempo_core.symbolic.isl.spans import most_across


@pytest.mark.parametrize(
    ("points", "most"),
    [
        ("[t] -> {[x] : t <= x < t + 4}", 4),
        ("[t] -> {[x] : t <= x < t + 4; [x] : x = t + 9 and t > 3}", 10),
        ("[t] -> {[x] : 3 * floor(t / 3) <= x <= t + 2 and 0 <= t < 10}", 5),
        ("[t] -> {[x] : 0 <= x <= t}", None),
        ("[t] -> {[x] : x > t and x < t}", 0),
    ],
)
def test_the_most_points_whatever_the_parameters_are(points, most):
    assert most_across(isl.Set(points)) == most
