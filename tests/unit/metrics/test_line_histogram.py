"""The histogram for lines shows what the client library's own would show."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest

from slackwater.metrics.line_histogram import LineHistogram

_BUCKETS = (0.005, 0.1, 1, 2.5)


@given(st.lists(st.sampled_from([0.0, 0.005, 0.0051, 0.1, 1.0, 2.0, 2.5, 100.0])))
def test_the_page_is_the_one_of_the_librarys_histogram(values: list[float]) -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left this one function unannotated
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = LineHistogram("x_seconds", "Text.", "model", buckets=_BUCKETS, registry=ours).labels("m")
    library = Histogram("x_seconds", "Text.", ("model",), buckets=_BUCKETS, registry=theirs).labels("m")

    for value in values:
        mine.observe(value)
        library.observe(value)

    assert generate_latest(ours) == generate_latest(theirs)


def test_a_label_is_bound_to_the_same_series_every_time() -> None:
    histogram = LineHistogram("x_seconds", "Text.", "model", buckets=_BUCKETS, registry=CollectorRegistry())

    assert histogram.labels("m") is histogram.labels("m")
    assert histogram.labels("m") is not histogram.labels("n")
