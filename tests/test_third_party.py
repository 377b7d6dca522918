"""``ci/third_party``: environments are made once, names are known, records are fit to publish."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from harness import third_party
from harness.adapters import BUILT_IN, decoder_names
from harness.adapters.engines import ENGINES, Engine, environment
from harness.third_party import InstallError, command, install, installed, listing, main

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "#!/usr/bin/env bash\nset -e\nmkdir -p $1/bin\necho made >>$1.count\ntouch $1/bin/python\n"


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine ``acme`` whose recipe may be edited, and a cache of its own."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "acme-1").write_text(RECIPE)
    monkeypatch.setattr(third_party, "RECIPES", folder)
    monkeypatch.setattr(third_party, "ENGINES", {"acme": Engine("acme:build", "acme-1")})
    monkeypatch.setenv("SPECDEC_ENGINES", str(tmp_path / "engines"))
    return folder


def times_made(folder: Path) -> int:
    return (folder.parent / "engines" / "acme-1.count").read_text().count("made")


def test_an_environment_is_made_once_and_again_when_its_recipe_changes(recipes: Path) -> None:
    assert not installed("acme-1")
    assert main(["--install", "acme-1"]) == 0
    assert installed("acme-1")
    assert main(["--install", "acme-1"]) == 0
    assert times_made(recipes) == 1
    (recipes / "acme-1").write_text(RECIPE + "# another version\n")
    assert not installed("acme-1")
    assert main(["--install", "acme-1"]) == 0
    assert times_made(recipes) == 2
    assert main(["--install", "acme-1", "--again"]) == 0
    assert times_made(recipes) == 3


def test_a_recipe_that_fails_leaves_a_log_and_no_environment(
    recipes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recipes / "acme-1").write_text("mkdir -p $1/bin; touch $1/bin/python; echo no wheel; exit 1")
    assert main(["acme"]) == 3
    errors = capsys.readouterr().err
    assert "no wheel\n" in errors
    assert "error: the recipe acme-1 failed; all of its log: " in errors
    assert not environment("acme-1").exists()
    assert environment("acme-1").with_name("acme-1.log").read_text() == "no wheel\n"
    with pytest.raises(InstallError, match="acme-1 failed"):
        install("acme-1")


def test_the_list_says_what_is_installed(recipes: Path) -> None:
    line = next(line for line in listing().splitlines() if line.startswith("acme"))
    assert line.split()[1:] == ["acme-1", "not", "installed"]
    main(["--install", "acme-1"])
    line = next(line for line in listing().splitlines() if line.startswith("acme"))
    assert line.split()[1:] == ["acme-1", "installed"]
    assert "transformers-assisted" in listing()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["acne"], "unknown decoder 'acne': did you mean acme?"),
        (["reference"], "unknown decoder 'reference': known are transformers-assisted,"),
        (["--install", "acme"], "unknown environment 'acme': did you mean acme-1?"),
        ([], "give a decoder, or --list, or --install ENVIRONMENT"),
    ],
)
def test_bad_names_are_one_line(
    recipes: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {words}")


@pytest.mark.parametrize("arguments", [["--profile", "huge"], ["--pear", "tiny"]])
def test_malformed_options_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_is_what_a_person_would_type(monkeypatch: pytest.MonkeyPatch) -> None:
    words = command("acme", "ci")
    assert " ".join(words) == (
        "-m pytest suites/ --decoder acme --profile ci --seconds 30 "
        "--results reports/third_party/acme.jsonl"
    )
    monkeypatch.setattr(third_party, "ROOT", Path("/nowhere"))
    words = command("acme", "smoke", "smollm2-135m", ["-n", "2"])
    assert words[-6:] == [
        *("--pair", "smollm2-135m", "--results"),
        *("reports/third_party/acme.smollm2-135m.jsonl", "-n", "2"),
    ]


def test_known_failures_are_expected_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(third_party, "ROOT", tmp_path)
    (tmp_path / third_party.XFAILS).mkdir(parents=True)
    (tmp_path / third_party.XFAILS / "acme.txt").write_text("")
    assert "--xfails-file harness/adapters/xfails/acme.txt" in " ".join(command("acme", "ci"))


def test_a_decoder_is_judged_and_its_record_knows_no_machine(
    recipes: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real thing on the smallest suite; a decoder whose errors name places fails it."""
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("suites", "harness", "reference_impl", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    code = (
        "import tempfile\nfrom pathlib import Path\n"
        "class Lost:\n"
        "    capabilities = frozenset({'greedy'})\n"
        "    def generate(self, requests):\n"
        "        built = f'{tempfile.gettempdir()}/build/main.c:3, /home/somebody/src/a/ops.c:5'\n"
        "        here, home = Path.cwd(), Path.home()\n"
        "        raise OSError(f'{home}/weights, {here}/weights: not found; {built}')\n"
        "def build(pair):\n    return Lost()\n"
    )
    (root / "lost.py").write_text(code)
    monkeypatch.setattr(third_party, "ROOT", root)
    monkeypatch.setattr(third_party, "HERE", ("lost:build",))
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k[:6] != "PYTEST"})
    to_pytest = ["--", "-k", "wired", "-pno:cacheprovider"]
    assert main(["--profile", "smoke", "lost:build", *to_pytest]) == 1
    text = (root / third_party.record_of("lost:build", part=True)).read_text()
    assert not (root / third_party.record_of("lost:build")).exists()
    assert "~/weights, weights: not found; TMP/main.c:3, TMP/ops.c:5" in text
    assert str(Path.home()) + "/" not in text
    assert str(root) not in text


def test_every_engine_has_a_recipe_and_every_recipe_an_engine() -> None:
    recipes = {path.name for path in third_party.RECIPES.iterdir()}
    assert recipes == {engine.environment for engine in ENGINES.values()}
    for name in recipes:
        path = third_party.RECIPES / name
        assert os.access(path, os.X_OK), f"{path} is not executable"
        assert path.read_text().startswith("#!/usr/bin/env bash\n")
        subprocess.run(["bash", "-n", path], check=True)


def test_names_do_not_collide_and_are_listed() -> None:
    assert not set(ENGINES) & set(BUILT_IN)
    assert set(ENGINES) <= set(decoder_names())
    assert set(third_party.decoders()) <= set(decoder_names())


def test_files_of_known_failures_belong_to_decoders_and_can_be_read() -> None:
    from harness.expectations import Expectations

    for path in (ROOT / third_party.XFAILS).glob("*.txt"):
        assert path.stem in third_party.decoders(), path
        assert Expectations.read(str(path), None).xfails, f"{path} expects nothing: delete it"


def test_the_wrapper_parses() -> None:
    subprocess.run(["bash", "-n", ROOT / "ci" / "third_party"], check=True)
    assert os.access(ROOT / "ci" / "third_party", os.X_OK)


def test_the_example_for_users_is_a_workflow() -> None:
    workflow = yaml.safe_load((ROOT / "ci" / "third_party.yml").read_text())
    triggers = workflow[True]  # `on` is a boolean in YAML 1.1
    assert {"push", "pull_request", "schedule"} <= set(triggers)
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
    runs = [s["run"] for j in workflow["jobs"].values() for s in j["steps"] if "run" in s]
    assert any("pytest --pyargs suites" in run for run in runs)
