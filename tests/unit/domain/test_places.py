from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.places import pack_places, unpack_places


@given(st.sets(st.integers(0, 2000)))
def test_a_set_of_places_comes_back_in_order(places: set[int]) -> None:
    packed = pack_places(places)

    assert unpack_places(packed) == sorted(places)
    assert len(packed) == (max(places) // 8 + 1 if places else 0)
