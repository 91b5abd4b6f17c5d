"""`curves.json`: the learning curves that warm-ups showed, and what they predict of the allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.records import Curve, CurveFit, CurveForm, Verdict
from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.codec import Fields, open_artefact
from calibudget.store.files import write_atomic

CURVES_NAME: Final = "curves.json"
_SCHEMA: Final = "calibudget.curves/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCurve:
    """One source's curve and what follows from it.

    Attributes:
        exposures: units that the warm-ups trained on, ascending.
        fit: the curve.
        quota_interval: 95% interval of the quota that predicts the least macro NLL.
        predicted_nll: NLL at the allocation's quota, nats; None where the curve has no value there (a quota of 0).
    """

    exposures: tuple[int, ...]
    fit: CurveFit
    quota_interval: tuple[int, int]
    predicted_nll: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveReport:
    """What `curves.json` holds.

    Attributes:
        form: the form that was asked for.
        shrink: whether slopes were drawn together.
        run_sd: sd of a mean NLL from one training to the next, as it was given, nats.
        resamples: bootstrap replicates.
        bootstrap_seed: their seed.
        prior: mean and variance that slopes were drawn towards; None where they weren't.
        importance: what a nat of each source is worth; None if all are worth the same.
        transfer: by source what a doubling of its exposure lowers each source's mean NLL by, nats; None unless warm-ups
            were mixtures, and the curves are then those of the macro NLL.
        sources: by label, code-point order.
        predicted_nll: (weighted) macro NLL at the allocation's quotas, nats; None where a curve has no value there.
        prediction_interval: its 95% interval; None likewise.
    """

    form: CurveForm
    shrink: bool
    run_sd: float
    resamples: int
    bootstrap_seed: int
    prior: tuple[float, float] | None
    importance: Mapping[str, float] | None
    sources: Mapping[str, SourceCurve]
    predicted_nll: float | None
    prediction_interval: tuple[float, float] | None
    transfer: Mapping[str, Mapping[str, float]] | None = None

    @property
    def curves(self) -> dict[str, Curve]:
        """The curve of each source."""
        return {label: row.fit.curve for label, row in self.sources.items()}


def curves_to_json(report: CurveReport) -> dict[str, object]:
    """The `curves.json` object of a report."""
    return {
        "schema": _SCHEMA,
        "form": report.form,
        "shrink": report.shrink,
        "run_sd": report.run_sd,
        "bootstrap": {"resamples": report.resamples, "seed": report.bootstrap_seed},
        "prior": None if report.prior is None else {"mean": report.prior[0], "variance": report.prior[1]},
        "importance": None if report.importance is None else dict(sorted(report.importance.items())),
        "sources": {label: _source_json(row) for label, row in sorted(report.sources.items())},
        "predicted_nll": report.predicted_nll,
        "prediction_interval": None if report.prediction_interval is None else list(report.prediction_interval),
        **({} if report.transfer is None else {"transfer": {k: dict(row) for k, row in report.transfer.items()}}),
    }


def write_curves(path: Path, report: CurveReport) -> None:
    """Write `curves.json`, atomically.

    Raises:
        InputError: a value has no canonical JSON form.
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(curves_to_json(report)))


def read_curves(path: Path) -> CurveReport:
    """Read `curves.json`; floats come back bit for bit.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    root = open_artefact(read_object(path), path.name, _SCHEMA)
    bootstrap = root.child("bootstrap")
    report = CurveReport(
        form=cast(CurveForm, root.one_of("form", "log-linear", "power")),
        shrink=root.boolean("shrink"),
        run_sd=root.number("run_sd", minimum=0.0),
        resamples=bootstrap.integer("resamples", minimum=1),
        bootstrap_seed=bootstrap.integer("seed", minimum=None),
        prior=root.nullable("prior", lambda name: _parse_prior(root.child(name))),
        importance=root.nullable("importance", lambda name: root.numbers_by_label(name, minimum=0.0)),
        sources={label: _parse_source(row) for label, row in root.by_label("sources").items()},
        predicted_nll=root.nullable("predicted_nll", root.number),
        prediction_interval=root.nullable("prediction_interval", lambda name: _pair(root, name)),
        transfer=root.nullable("transfer", lambda name: _parse_transfer(root, name), may_be_absent=True),
    )
    bootstrap.finish()
    root.finish()
    if not report.sources:
        raise ArtefactError(f"{path.name}: sources: is empty")
    return report


def _source_json(row: SourceCurve) -> dict[str, object]:
    fit = asdict(row.fit)
    curve = fit.pop("curve")
    return {
        "exposures": list(row.exposures),
        **curve,
        **fit,
        "interval": list(row.fit.interval),
        "quota_interval": list(row.quota_interval),
        "predicted_nll": row.predicted_nll,
    }


def _parse_source(row: Fields) -> SourceCurve:
    low, high = row.integers("quota_interval", length=2)
    source = SourceCurve(
        exposures=tuple(_positive(row, "exposures")),
        fit=CurveFit(
            curve=Curve(
                exposure=row.integer("exposure", minimum=1),
                level=row.number("level"),
                slope=row.number("slope", minimum=0.0),
                exponent=row.number("exponent", minimum=0.0),
            ),
            raw_slope=row.number("raw_slope"),
            slope_sd=row.number("slope_sd", minimum=0.0),
            interval=_pair(row, "interval"),
            verdict=cast(Verdict, row.one_of("verdict", "falling", "flat", "rising")),
            records_needed=row.nullable("records_needed", row.integer),
        ),
        quota_interval=(low, high),
        predicted_nll=row.nullable("predicted_nll", row.number),
    )
    row.finish()
    return source


def _positive(row: Fields, name: str) -> tuple[int, ...]:
    value = row.item(name)
    if not isinstance(value, list) or not value or any(type(one) is not int or one < 1 for one in value):
        row.refuse(name, "a list of counts from 1 on", value)
    return tuple(value)


def _pair(row: Fields, name: str) -> tuple[float, float]:
    low, high = row.numbers(name, length=2)
    return low, high


def _parse_prior(row: Fields) -> tuple[float, float]:
    prior = row.number("mean"), row.number("variance", minimum=0.0)
    row.finish()
    return prior


def _parse_transfer(root: Fields, name: str) -> dict[str, dict[str, float]]:
    rows = root.child(name)
    return {label: rows.numbers_by_label(label) for label in root.by_label(name)}
