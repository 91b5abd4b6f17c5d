"""CaliBudget turns a fixed training budget into exact, calibrated and verifiable quotas per data source."""
