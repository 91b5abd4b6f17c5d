"""From a study's cells to tables, figures and words; nothing here changes a result."""
