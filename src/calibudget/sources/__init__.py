"""Sources: files and hub data sets to identified records, their calibration split and what was noticed in them."""

from calibudget.sources.cache_files import cache_folder
from calibudget.sources.duplicates import Resolved
from calibudget.sources.fields import Format
from calibudget.sources.files import DataFile, check_distinct_files, files_not_read, find_files
from calibudget.sources.formats import Example, detect_format, read_example
from calibudget.sources.hygiene.checks import (
    Checked,
    Matched,
    Matches,
    barred,
    checked_records,
    checked_source,
    found,
    refuse,
    shared_prompts,
    shared_texts,
)
from calibudget.sources.hygiene.contamination import EvaluationWords
from calibudget.sources.hygiene.findings import Texts, kept_findings, texts_of, texts_read
from calibudget.sources.hygiene.near_duplicates import NearDuplicates
from calibudget.sources.hygiene.report import inspect_sources
from calibudget.sources.hygiene.twins import HeldOutWords
from calibudget.sources.identity import Identity, NormalisedRecord, identify, normal_instruction, normalise_record
from calibudget.sources.limits import LIMITS, Limits
from calibudget.sources.pool import CandidatePool, chosen_records
from calibudget.sources.readers import Readers, Reading
from calibudget.sources.remote import check_path
from calibudget.sources.rows import SUFFIXES, read_rows
from calibudget.sources.source import SourceRead, open_source, open_sources, read_source, record_maker
from calibudget.sources.spec import (
    ContaminationRule,
    Duplicates,
    HygieneRules,
    NearDuplicatesRule,
    OnError,
    SourceSpec,
)
from calibudget.sources.split import Barred, Earlier, Parting, check_roles, part_source, split_source
from calibudget.sources.table import Rows

__all__ = [
    "LIMITS",
    "SUFFIXES",
    "Barred",
    "CandidatePool",
    "Checked",
    "ContaminationRule",
    "DataFile",
    "Duplicates",
    "Earlier",
    "EvaluationWords",
    "Example",
    "Format",
    "HeldOutWords",
    "HygieneRules",
    "Identity",
    "Limits",
    "Matched",
    "Matches",
    "NearDuplicates",
    "NearDuplicatesRule",
    "NormalisedRecord",
    "OnError",
    "Parting",
    "Readers",
    "Reading",
    "Resolved",
    "Rows",
    "SourceRead",
    "SourceSpec",
    "Texts",
    "barred",
    "cache_folder",
    "check_distinct_files",
    "check_path",
    "check_roles",
    "checked_records",
    "checked_source",
    "chosen_records",
    "detect_format",
    "files_not_read",
    "find_files",
    "found",
    "identify",
    "inspect_sources",
    "kept_findings",
    "normal_instruction",
    "normalise_record",
    "open_source",
    "open_sources",
    "part_source",
    "read_example",
    "read_rows",
    "read_source",
    "record_maker",
    "refuse",
    "shared_prompts",
    "shared_texts",
    "split_source",
    "texts_of",
    "texts_read",
]
