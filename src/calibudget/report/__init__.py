"""One HTML file that shows a run or a study: offline, for light and dark, screen and paper."""

from calibudget.report.page import write_report

__all__ = ["write_report"]
