"""How fast the suite itself is: environment steps, games beside those of other libraries, forks, grading, the rollout.

Every figure is measured in the same run as what it is compared with, and the comparison is printed as a ratio: absolute
times belong to a machine and its load. Run it with ``make bench`` or ``python -m benchmarks.performance``.
"""
