"""The way to a profile that needs less memory, and back: proved before anything is stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.node import ENV, INCLUDE, Node, case_of, service, take_back, walk
from vllm_watchdog.remediations.quantize import Quantize
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.model import ServiceMode

PROFILES = {
    "fp16": "MODEL=/models/fp16\n",
    "smaller": "MODEL=/models/fp16\nMAX_NUM_SEQS=8\n",
    "int8": "MODEL=/models/int8\n",
}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    for name, text in PROFILES.items():
        made.write(f"/etc/w/{name}.env", text)
    weights(made, "fp16", 4000, {})
    weights(made, "int8", 2000, {"quantization_config": {"quant_method": "compressed-tensors"}})
    made.clock.advance(60)
    return made


def weights(node: Node, name: str, size: int, config: dict[str, Any]) -> None:
    node.write(f"/models/{name}/config.json", json.dumps({"model_type": "x", **config}))
    node.write(f"/models/{name}/model-1.safetensors", "x" * size)
    index = {"weight_map": {"a": "model-1.safetensors"}}
    node.write(f"/models/{name}/model.safetensors.index.json", json.dumps(index))


def act(node: Node, profile: str = "", cause: str = "device_memory", **more: Any) -> ActCase:
    keys = ("overflow", "probe")
    settings = service(
        profiles={name: f"/etc/w/{name}.env" for name in PROFILES},
        start_profile="fp16",
        **{key: more.pop(key) for key in keys if key in more},
    )
    return case_of(node, settings, cause, mode=ServiceMode(profile=profile), **more)


def started_with(node: Node) -> str:
    return node.files.text(f"/proc/{node.unit.main}/environ")


def test_the_server_is_started_on_the_int8_checkpoint(node: Node) -> None:
    case = act(node)
    assert Quantize().precheck(node.system, case) == ""

    went = walk(node, Quantize().plan(node.system, case))

    assert went.why == ""
    assert "MODEL=/models/int8" in started_with(node)
    assert went.sets["profile"] == "int8"
    assert went.steps["prove that the settings took effect"] == "found"


def test_weaker_profiles_come_before_another_checkpoint(node: Node) -> None:
    order = ("smaller", "int8")
    first = Quantize().plan(node.system, act(node, overflow=order))
    second = Quantize().plan(node.system, act(node, profile="smaller", overflow=order))

    assert [first[-1].sets, second[-1].sets] == [{"profile": "smaller"}, {"profile": "int8"}]


def test_after_the_last_profile_it_is_declined(node: Node) -> None:
    assert Quantize().precheck(node.system, act(node, "int8")) == "no profile is left to try"


@pytest.mark.parametrize("cause", ["foreign_memory", "fragmentation", "host_memory", "none"])
def test_it_cures_nothing_but_a_lack_of_device_memory(node: Node, cause: str) -> None:
    assert Quantize().precheck(node.system, act(node, cause=cause)) == f"it cures no {cause}"


def test_a_unit_without_our_environment_file_is_declined(node: Node) -> None:
    node.unit.environment_files = (ENV, "/etc/default/vllm")  # the last one wins, and is not ours

    told = Quantize().precheck(node.system, act(node))

    assert told == f"vllm@chat.service lacks EnvironmentFile=-{ENV} as its last one"


def spoil_missing(node: Node) -> None:
    node.files.path("/models/int8/model-1.safetensors").unlink()


def spoil_empty(node: Node) -> None:
    node.write("/models/int8/model-1.safetensors", "")


def spoil_config(node: Node) -> None:
    node.write("/models/int8/config.json", "{")


def spoil_plain(node: Node) -> None:
    weights(node, "int8", 2000, {})


def spoil_large(node: Node) -> None:
    weights(node, "int8", 4000, {"quantization_config": {}} | {"quantization_config": {"a": 1}})


def spoil_name(node: Node) -> None:
    node.write("/etc/w/int8.env", "MODEL=org/model-int8\n")


def spoil_outside(node: Node) -> None:
    index = {"weight_map": {"a": "../fp16/model-1.safetensors"}}
    node.write("/models/int8/model.safetensors.index.json", json.dumps(index))


def spoil_same(node: Node) -> None:
    node.write("/etc/w/int8.env", "MODEL=/models/fp16\n")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (spoil_missing, "No such file"),
        (spoil_empty, "model-1.safetensors is empty"),
        (spoil_config, "config.json is no JSON"),
        (spoil_plain, "is not quantized"),
        (spoil_large, "is no smaller than /models/fp16"),
        (spoil_name, "is no path on this node"),
        (spoil_outside, "names a file elsewhere"),
        (spoil_same, "profile int8 changes nothing"),
    ],
)
def test_a_checkpoint_that_would_not_load_or_not_help_is_declined(
    node: Node, spoil: Any, told: str
) -> None:
    spoil(node)

    assert told in Quantize().precheck(node.system, act(node))
    assert node.log == []


def test_ascend_s_own_description_makes_a_checkpoint_quantized(node: Node) -> None:
    weights(node, "int8", 2000, {})
    node.write("/models/int8/quant_model_description_w8a8.json", "{}")

    assert Quantize().precheck(node.system, act(node)) == ""


def test_a_profile_that_does_not_come_up_is_taken_back_to_the_one_before(node: Node) -> None:
    node.write(ENV, "MODEL=/models/fp16\n")
    case = act(node)
    node.loading, node.dies = 600.0, 30.0
    went = walk(node, Quantize().plan(node.system, case))
    node.dies = None

    take_back(node, went, all_steps=True)

    assert "it ended before it answered" in went.why
    assert "profile" not in went.sets
    assert started_with(node) == "MODEL=/models/fp16"
    assert "server 127.0.0.1:8000;" in node.files.text(INCLUDE)


def test_a_wrong_canary_answer_fails_it(node: Node) -> None:
    node.answer = "5"
    probe = {"kind": "completion", "model": "m", "expect": "^4$"}

    went = walk(node, Quantize().plan(node.system, act(node, probe=probe)))

    assert "not what is expected" in went.why


def test_an_environment_that_did_not_take_effect_fails_it(node: Node) -> None:
    case = act(node)
    steps = Quantize().plan(node.system, case)
    proof = next(step for step in steps if step.name.startswith("prove that"))
    walk(node, steps, stop_after="start")
    node.write(f"/proc/{node.unit.main}/environ", "MODEL=/models/fp16")

    assert (proof.done(node.system), proof.must) == ("no", True)


@pytest.mark.parametrize(
    "step",
    ["drain the front", "stop by the manager", "give it other settings", "start"],
)
def test_after_a_crash_at_any_step_it_goes_on_with_the_same_profile(node: Node, step: str) -> None:
    order = ("smaller", "int8")
    case = act(node, overflow=order)
    walk(node, Quantize().plan(node.system, case), stop_after=step)

    went = walk(node, Quantize().plan(node.system, case))

    assert went.why == ""
    assert node.log.count("systemctl start") == 1
    assert "MAX_NUM_SEQS=8" in started_with(node)


def test_a_restart_by_the_unit_itself_is_not_taken_for_ours(node: Node) -> None:
    case = act(node)
    node.crash()
    node.boot()  # Restart= was faster, with the old profile

    went = walk(node, Quantize().plan(node.system, case))

    assert went.why == ""
    assert "MODEL=/models/int8" in started_with(node)


def test_the_way_back_leads_to_the_first_profile_at_low_load(node: Node) -> None:
    node.running = 20
    back = act(node, "int8", back=True)
    busy = Quantize().precheck(node.system, back)
    node.running = 0

    assert "not at low load" in busy
    assert Quantize().precheck(node.system, back) == ""
    went = walk(node, Quantize().plan(node.system, back))
    assert "MODEL=/models/fp16" in started_with(node)
    assert went.sets["profile"] == ""
