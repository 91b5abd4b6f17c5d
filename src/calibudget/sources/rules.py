"""What a recipe asks of its sources' hygiene."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from calibudget.sources.spec import Duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class ContaminationRule:
    """Runs of words that sources share with evaluation sets.

    Attributes:
        action: what happens to a source's record that has one.
        ngram: how many words a run has.
    """

    action: Duplicates = "keep"
    ngram: int = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDuplicatesRule:
    """Records that are nearly alike, by MinHash and locality-sensitive hashing.

    Attributes:
        action: what happens to a record that is nearly alike one before it, or one of an evaluation set.
        threshold: Jaccard similarity, estimated, from which two records are nearly alike.
        permutations: hash values a record; the estimate's standard error is at most 0.5 / sqrt(permutations).
        ngram: words in each of the runs that records are compared by.
        seed: of the hash functions.
    """

    action: Duplicates = "drop"
    threshold: float = 0.8
    permutations: int = 128
    ngram: int = 3
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HygieneRules:
    """What is looked for beside the duplicates of each source; None where it isn't.

    Attributes:
        evaluation_prompts: what happens to records with a prompt of an evaluation set.
        cross_source: what happens to records that an earlier source holds too.
        contamination: shared runs of words.
        near_duplicates: nearly equal records.
    """

    evaluation_prompts: Duplicates = "drop"
    cross_source: Duplicates = "keep"
    contamination: ContaminationRule | None = field(default_factory=ContaminationRule)
    near_duplicates: NearDuplicatesRule | None = None

    def action(self, check: str) -> Duplicates | None:
        """What happens to what a check found; None for one that isn't asked for."""
        known = {"evaluation_prompts": self.evaluation_prompts, "cross_source": self.cross_source}
        asked = {"contamination": self.contamination, "near_duplicates": self.near_duplicates}
        rule = asked.get(check)
        return known.get(check) if rule is None else rule.action

    def to_json(self, duplicates: Mapping[str, Duplicates]) -> dict[str, object]:
        """The `rules` of `hygiene.json`; what isn't looked for is null."""
        fields = asdict(self)
        return {
            "duplicates": dict(sorted(duplicates.items())),
            **{name: {"action": rule} if isinstance(rule, str) else rule for name, rule in fields.items()},
        }
