from slackwater.domain.limits import InputLimits

LIMITS = InputLimits(max_lines=1_000, max_input_bytes=10_000)


def test_a_tenants_limits_only_lower_the_services() -> None:
    lowered = LIMITS.lowered(max_lines=10, max_input_bytes=20_000)

    assert (lowered.max_lines, lowered.max_input_bytes) == (10, 10_000)
    assert LIMITS.lowered(max_lines=2_000, max_input_bytes=20).max_input_bytes == 20


def test_a_tenant_without_limits_has_the_services() -> None:
    assert LIMITS.lowered(max_lines=None, max_input_bytes=None) == LIMITS
