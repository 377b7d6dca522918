"""pytest plugin: subjects, budgets, verdicts. ``pytest suites/`` is this plugin over the checks.

Every item of a suite ends in one verdict: PASS passes, UNSUPPORTED skips, all others fail. With
``--results FILE`` they are written as a record, also under xdist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness import pytest_pairs
from harness.checks.budget import ALPHA, PROFILES, Budget
from harness.expectations import Expectations, ExpectationsError
from harness.pair_files import DTYPES
from harness.pytest_options import check_options, decoder_name, decoder_options
from harness.pytest_options import pytest_addoption as pytest_addoption
from harness.pytest_outcome import end, full_name
from harness.said import words_of
from harness.verdict import Status, Verdict

if TYPE_CHECKING:
    from harness.checks.subject import Subject
    from harness.pytest_resume import Resumed
    from harness.record import Header

_verdict_key = pytest.StashKey[Verdict]()
_retries_key = pytest.StashKey[int]()
_statistical_key = pytest.StashKey[int]()
_expectations_key = pytest.StashKey[Expectations]()
_header_key: pytest.StashKey[Header | None] = pytest.StashKey()
_resumed_key: pytest.StashKey[Resumed] = pytest.StashKey()

_NOT_HERE = "UNSUPPORTED: "


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything runs: bad input is one line and exit code 2."""
    config.addinivalue_line(
        "markers", "pairs(*names): model pairs of a suite; smoke takes the first"
    )
    config.addinivalue_line("markers", "slow: left out by --profile smoke")
    config.addinivalue_line("markers", "statistical: shares the run's alpha with its like")
    try:
        check_options(config)
        config.stash[_expectations_key] = Expectations.read(
            config.getoption("xfails_file"), config.getoption("skips_file")
        )
        _prepare_record(config)
    except (ValueError, ExpectationsError) as error:
        pytest.exit(f"error: {error}", returncode=2)


def _prepare_record(config: pytest.Config) -> None:
    """Find out whether it can be written and, with ``--resume``, gone on with."""
    option = config.getoption
    config.stash[_header_key] = None
    if _is_worker(config):
        if option("resume"):
            from harness.pytest_resume import Resumed

            _resume(config, Resumed.sent_to(config.workerinput))  # type: ignore[attr-defined]
        return
    if option("resume"):
        from harness.resume import require

        require(Path(option("results")))
    for name in ("results", "badge"):
        if path := option(name):
            from harness.record import check_writable

            check_writable(f"--{name}", Path(path))
    if option("results") and not option("collectonly"):
        from harness.pytest_recorder import header

        config.stash[_header_key] = header(config)
    if option("resume") and (found := config.stash[_header_key]):
        from harness.pytest_resume import Resumed

        _resume(config, Resumed.from_file(Path(option("results")), found))


def _resume(config: pytest.Config, resumed: Resumed) -> None:
    config.stash[_resumed_key] = resumed
    config.pluginmanager.register(resumed, "specdec-resumed")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name what is tested, and at what error level."""
    if not _runs_suites(config):
        return []
    from harness.record import versions

    option = config.getoption
    pair = option("pair") or (f"{option('target')} + {option('draft')}" if option("target") else "")
    if option("vocab_size"):
        pair = f"no weights, {option('vocab_size')} ids"
    found = ", ".join(f"{k} {v}" for k, v in versions().items())
    coarse = option("dtype") != DTYPES[0]
    where = f"{option('device')} in {option('dtype')}" if coarse else option("device")
    return [
        f"decoder: {decoder_name(config)} {decoder_options(config) or ''}".rstrip(),
        f"pair: {pair or 'tiny pairs'} on {where}; profile: {option('profile')}",
        f"seed: {option('seed')}; alpha: {ALPHA} for the whole run",
        f"versions: {found}",
    ]


def _runs_suites(config: pytest.Config) -> bool:
    places = [str(argument).split("::")[0] for argument in config.args]
    return any("suites" in Path(p).parts or p.startswith("suites.") for p in places)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run an item once for every pair of its suite."""
    if "subject" not in metafunc.fixturenames:
        return
    option = metafunc.config.getoption
    marker = metafunc.definition.get_closest_marker("pairs")
    names = list(marker.args) if marker else ["tiny"]
    if asked := pytest_pairs.asked(metafunc.config):
        names = [asked]
    elif option("profile") == "smoke":
        names = names[:1]
    metafunc.parametrize("subject", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what smoke does not run, count the tests that share alpha, apply the files."""
    if config.getoption("profile") == "smoke":
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
    config.stash[_statistical_key] = sum(1 for i in items if i.get_closest_marker("statistical"))
    resumed = config.stash.get(_resumed_key, None)
    for item in items:
        name = full_name(item)
        expected = config.stash[_expectations_key]
        if reason := expected.skip(name):
            item.add_marker(pytest.mark.skip(reason=reason))
        reason, strict = expected.xfail(name), not expected.may_pass(name)
        if resumed:
            reason, strict = resumed.expected(item, reason, strict)
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=strict))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Open the record, in the controlling process only."""
    config = session.config
    if _is_worker(config):
        return
    from harness.pytest_recorder import Recorder

    recorder = Recorder(
        config,
        config.stash[_expectations_key],
        config.stash[_header_key],
        config.stash.get(_resumed_key, None),
    )
    config.pluginmanager.register(recorder, "specdec-recorder")


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """The decoder under test on one pair, built anew for every pair."""
    from harness.adapters import DecoderError, NotInstalledError, load_decoder
    from harness.checks.subject import Subject
    from harness.contract import ClosingDecoder
    from harness.models import TINY_PAIRS, PairError
    from harness.pair_files import UnsupportedPairError

    option, name = request.config.getoption, request.param
    options, decoder_is = decoder_options(request.config), decoder_name(request.config)
    try:
        pair = pytest_pairs.loaded(request.config, name)
        decoder = load_decoder(decoder_is, pair, options)
    except PairError as error:
        # It ends the run, which a worker cannot, unless the user asked for no such pair.
        asked = name in TINY_PAIRS or option("pair") or option("target")
        if _is_worker(request.config) or not asked:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        pytest.exit(f"error: {error}", returncode=2)
    except (NotInstalledError, UnsupportedPairError) as error:
        pytest.skip(f"{_NOT_HERE}{error}")
    except DecoderError as error:  # on this pair: it may do on others
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    arguments = pytest_pairs.arguments(request.config, name)
    yield Subject(decoder, pair, decoder_is, options, arguments)
    if isinstance(decoder, ClosingDecoder):
        decoder.close()


@pytest.fixture(scope="session")
def _paces() -> dict[str, float]:
    return {}


@pytest.fixture
def budget(request: pytest.FixtureRequest, subject: Subject, _paces: dict[str, float]) -> Budget:
    """What the chosen profile may spend."""
    from harness.checks import pace

    option = request.config.getoption
    chosen = PROFILES[option("profile")]
    if option("draft_tokens") is not None:
        chosen = dataclasses.replace(chosen, draft_tokens=(option("draft_tokens"),))
    if option("samples") is not None:
        chosen = dataclasses.replace(chosen, samples=option("samples"))
    if option("seconds") is not None and request.node.get_closest_marker("statistical"):
        if subject.pair.name not in _paces:
            _paces[subject.pair.name] = pace.generations_per_second(subject)
        chosen = pace.within(chosen, option("seconds"), _paces[subject.pair.name])
    tests = max(1, request.config.stash[_statistical_key])
    return dataclasses.replace(chosen, seed=option("seed"), alpha=ALPHA / tests)


@pytest.fixture
def conclude(request: pytest.FixtureRequest, subject: Subject) -> Callable[[Verdict], None]:
    """End the item with a verdict."""
    before = subject.retries

    def conclude(verdict: Verdict) -> None:
        request.node.stash[_verdict_key] = verdict
        request.node.stash[_retries_key] = subject.retries - before
        end(verdict)

    return conclude


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdict to the report, the one thing that travels from an xdist worker."""
    report = yield
    if "subject" not in getattr(item, "fixturenames", ()):
        return report
    verdict = item.stash.get(_verdict_key, None) if call.when == "call" else None
    # A crash has no verdict yet; whether it was expected is the report's business.
    error = call.excinfo
    left_out = error and error.errisinstance(pytest.skip.Exception)
    if verdict is None and error and (not left_out or words_of(error.value).startswith(_NOT_HERE)):
        suite, test = (n.removeprefix("test_") for n in (item.path.stem, item.name.split("[")[0]))
        message = words_of(error.value).removeprefix(_NOT_HERE)
        if not left_out and not error.errisinstance(pytest.fail.Exception):
            message = f"{error.typename}: {message}"
        status = Status.UNSUPPORTED if left_out else Status.ERROR
        verdict = Verdict(check=f"{suite}.{test}", status=status, message=message)
    if verdict is not None:
        if hasattr(report, "wasxfail") and not verdict.passed:
            _judge_by_its_words(report, item, verdict)
        report.user_properties.append(("verdict", msgspec.to_builtins(verdict)))
        if (found := getattr(item, "funcargs", {}).get("subject")) is not None:
            report.user_properties.append(("versions", found.versions))
        if again := item.stash.get(_retries_key, 0):
            report.user_properties.append(("retries", again))
    return report


def _judge_by_its_words(report: pytest.TestReport, item: pytest.Item, verdict: Verdict) -> None:
    """An item that is expected to fail was so in one way: failing in another is no xfail."""
    if reason := item.config.stash[_expectations_key].explanation(full_name(item), verdict):
        report.wasxfail = reason
    else:
        report.outcome = "failed"
        del report.wasxfail
