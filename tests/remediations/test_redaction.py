"""What users wrote and what opens doors is cut; what tells of the fault stays."""

from __future__ import annotations

from time import process_time

import pytest

from vllm_watchdog.remediations.adapters.redaction import CUT, MAX_LINE, line, log, words

HEAD = "INFO 11-30 12:00:00 [logger.py:40] "


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "Received request cmpl-7: prompt: 'SECRET', params: SamplingParams(n=1)",
        HEAD + "Received request cmpl-7: params: x, prompt_token_ids: [1, SECRET]",
        HEAD + "Generated response cmpl-7: output: 'SECRET', finish_reason: stop",
        HEAD + '{"messages": [{"role": "user", "content": "SECRET"}]}',
        HEAD + '{"role": "user", "content": "SECRET"}',
        HEAD + '{"prompt": "SECRET"}',
        HEAD + "text='SECRET'",
        HEAD + "outputs=[CompletionOutput(text='SECRET')]",
        "ERROR 11-30 12:00:00 [core.py:1] Dumping input data: SECRET",
        HEAD + "non-default args: {'api_key': ['SECRET'], 'port': 8000}",
        HEAD + "api_key=SECRET",
        "Authorization: Bearer SECRET",
        "curl -H 'Authorization: Bearer SECRET'",
        "HF_TOKEN=SECRET",
        "hf_token='SECRET'",
        "password: SECRET",
        "https://user:SECRET@mirror/models",
        "loading with hf_SECRETSECRETSECRET",
        "key sk-SECRETSECRET",
    ],
)
def test_what_is_private_is_cut(text: str) -> None:
    assert "SECRET" not in line(text)


@pytest.mark.parametrize(
    "text",
    [
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Running: 3 reqs, Waiting: 1 reqs",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "max_num_batched_tokens=8192, max_tokens=16, num_tokens: 5",
        "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
        "RuntimeError: NCCL communicator was aborted on rank 3",
        'INFO: 127.0.0.1:5555 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error',
        "EI0006: socket build timeout, remote 10.0.0.2:16666",
    ],
)
def test_what_tells_of_the_fault_stays(text: str) -> None:
    assert line(text) == text


def test_a_line_has_a_bound() -> None:
    assert len(line("x" * 100_000)) <= MAX_LINE + len(CUT) + 1


def test_a_prompt_that_begins_far_behind_in_a_line_leaves_no_rest() -> None:
    text = log(f"{HEAD}{'x' * 9000} prompt: 'a\nSECRET'\n{HEAD}step\n".encode(), whole=True)

    assert "SECRET" not in text
    assert "step" in text


@pytest.mark.parametrize(
    "unit", ["a-", "://", "secret", "api-", "prompt", '"', "prompt=", "Bearer ", "text:", "a:b@"]
)
def test_hostile_lines_cost_no_more_than_others(unit: str) -> None:
    begun = process_time()
    log((f"{HEAD}{unit * 4000}"[:4000] + "\n").encode() * 64, whole=True)

    assert process_time() - begun < 1.0


def test_the_rest_of_a_cut_prompt_is_left_out() -> None:
    text = log(
        f"{HEAD}prompt: 'first\nSECRET\nSECRET too'\n{HEAD}step\nTraceback (most recent)\n".encode(),
        whole=True,
    )

    assert "SECRET" not in text
    assert "step" in text
    assert "Traceback" in text
    assert "(2 lines without a head left out" in text


def test_before_the_first_head_of_a_cut_log_nothing_is_kept() -> None:
    assert log(f"SECRET rest of a prompt\n{HEAD}step\n".encode()).splitlines()[0] == f"{HEAD}step"


def test_a_traceback_is_kept_whole() -> None:
    told = 'Traceback (most recent call last):\n  File "core.py", line 7, in step\nKeyError: 3\n'

    assert log(told.encode(), whole=True) == told


def test_hostile_bytes_are_no_error() -> None:
    assert log(b"\x00\xff\xfe" * 1000 + b"\n" + b"\x1b[31m" * 50, whole=True)


def test_values_of_secret_options_are_cut() -> None:
    argv = ["vllm", "serve", "--api-key", "K1", "K2", "--port", "8000", "--hf-token=K3"]

    assert words(argv) == "vllm serve --api-key <cut> <cut> --port 8000 --hf-token=<cut>"


def test_harmless_options_keep_their_values() -> None:
    argv = ["vllm", "--tokenizer", "m", "--max-num-batched-tokens", "8192"]

    assert words(argv) == " ".join(argv)
