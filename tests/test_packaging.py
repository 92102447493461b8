"""The built wheel holds everything, installs, runs, and leaves PyPI's `watchdog` alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".peers", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "tests"
)


def run(*argv: str | Path, cwd: Path, **env: str) -> str:
    """The command's standard output; a failure fails the test with all that it said."""
    ended = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the clone gets no build folder."""
    source = tmp_path_factory.mktemp("source") / "clone"
    shutil.copytree(REPOSITORY, source, ignore=NOT_COPIED)
    out = tmp_path_factory.mktemp("wheel")
    words = ("--wheel", "--no-isolation", "--outdir", out, source)
    run(sys.executable, "-m", "build", *words, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel in it, without a network.

    The dependencies, PyPI's `watchdog` among them, are those of the running environment: a .pth
    file names a folder of links to them, without this package itself.
    """
    home = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    python = home / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    shown = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home)
    dependencies = home / "dependencies"
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"(__editable__|vllm_watchdog)", path.name):
            (dependencies / path.name).symlink_to(path)
    (Path(shown.strip()) / "dependencies.pth").write_text(f"{dependencies}\n")
    return python


def test_the_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    wanted = {"vllm_watchdog/__init__.py", "vllm_watchdog/py.typed"}
    for top in ("collectors", "remediations", "rules", "watchdog"):
        for pattern in ("*.py", "*.yaml", "*.html", "*.css", "*.js"):
            paths = (REPOSITORY / top).rglob(pattern)
            wanted |= {f"vllm_watchdog/{path.relative_to(REPOSITORY)}" for path in paths}
    static = (REPOSITORY / "watchdog/api/static").iterdir()
    wanted |= {f"vllm_watchdog/watchdog/api/static/{path.name}" for path in static}
    wanted |= {
        f"vllm_watchdog/deploy/nginx/{p.name}" for p in (REPOSITORY / "deploy/nginx").iterdir()
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert wanted == held


def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        text = archive.read(names[0]).decode()

    assert "Apache License" in text


def test_the_installed_command_explains_itself(fresh: Path, tmp_path: Path) -> None:
    shown = run(fresh.parent / "vllm-watchdog", "--help", cwd=tmp_path)

    assert "run" in shown


def test_packaged_rules_are_read_through_importlib(fresh: Path, tmp_path: Path) -> None:
    script = (
        "from importlib import resources;"
        "print((resources.files('vllm_watchdog.rules') / 'documented.yaml').read_text('utf-8'))"
    )

    assert "alert: CardLost" in run(fresh, "-c", script, cwd=tmp_path)


def test_it_lives_beside_the_other_watchdog(fresh: Path, tmp_path: Path) -> None:
    script = (
        "import watchdog.events, vllm_watchdog.watchdog.model as ours;"
        "print(watchdog.events.FileSystemEvent.__name__, ours.Sample.__name__)"
    )

    assert run(fresh, "-c", script, cwd=tmp_path) == "FileSystemEvent Sample\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no PYTHONSAFEPATH before Python 3.11")
def test_the_other_watchdog_is_found_from_the_clone_too(fresh: Path) -> None:
    script = "import watchdog.events, vllm_watchdog.watchdog.model; print('both')"

    assert run(fresh, "-c", script, cwd=REPOSITORY, PYTHONSAFEPATH="1") == "both\n"
