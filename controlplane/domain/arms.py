"""Names of the arms that metrics, events and experiments speak of."""

LIVE_ARM = "live"  # the live settings, outside of an experiment
TREATMENT_ARM = "treatment"  # the live settings, within an experiment
CONTROL_ARM = "control"  # what they are measured against
