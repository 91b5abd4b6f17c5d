"""The only place that joins the stages: run, score, select, verify, and what the commands show of them."""
