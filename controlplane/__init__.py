"""Control plane of ELDR: fleets, calibrations, versions, experiments, drift, alerts, audit."""
