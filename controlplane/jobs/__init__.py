"""Work in the background: a lease, ticks by a timer, and calibrations in processes of their own."""
