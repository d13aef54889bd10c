"""Callbacks that capture the trainings of other libraries; each module imports its library."""
