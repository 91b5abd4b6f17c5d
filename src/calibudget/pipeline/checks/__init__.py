"""The parts of a verification, one a kind of artefact; `calibudget.pipeline.verify` joins them."""
