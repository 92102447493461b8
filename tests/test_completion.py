"""One real request as a user would make it, and what its answer means."""

import pytest

from tests.support.system import fake_system
from vllm_watchdog.watchdog.completion import answers, completion
from vllm_watchdog.watchdog.config import Service
from vllm_watchdog.watchdog.system import Response

URL = "http://127.0.0.1:8000"
MODELS = {f"GET {URL}/v1/models": '{"data": [{"id": "tiny"}]}'}
GOOD = '{"choices": [{"text": "4", "finish_reason": "length"}]}'


def service(**probe: object) -> Service:
    return Service.model_validate({"url": URL, "probe": {"kind": "completion", **probe}})


def test_an_answer_with_text_is_a_success() -> None:
    system = fake_system(pages={**MODELS, f"POST {URL}/v1/completions": GOOD})

    assert answers(system, URL, service(), timeout=5.0)


@pytest.mark.parametrize(
    ("status", "verdict"), [(500, "failed"), (503, "failed"), (401, "unknown")]
)
def test_a_status_decides(status: int, verdict: str) -> None:
    pages = {**MODELS, f"POST {URL}/v1/completions": Response(status, b"")}

    assert completion(fake_system(pages=pages), URL, service(), timeout=5.0).verdict == verdict


def test_an_answer_that_the_canary_does_not_expect_is_no_success() -> None:
    pages = {**MODELS, f"POST {URL}/v1/completions": GOOD}

    assert not answers(fake_system(pages=pages), URL, service(expect="^5$"), timeout=5.0)


def test_without_a_kind_the_openapi_page_decides() -> None:
    pages = {
        **MODELS,
        f"GET {URL}/openapi.json": '{"paths": {"/v1/embeddings": {}}}',
        f"POST {URL}/v1/embeddings": '{"data": [{"embedding": [0.5]}]}',
    }

    assert answers(fake_system(pages=pages), URL, service(kind=None), timeout=5.0)


def test_where_probing_is_off_health_is_asked() -> None:
    system = fake_system(pages={f"GET {URL}/health": ""})

    assert answers(system, URL, service(kind="none"), timeout=5.0)
