"""One HTML file that shows a run or a study: offline, for light and dark, screen and paper."""
