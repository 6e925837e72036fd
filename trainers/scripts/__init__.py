"""Reference training scripts: a whole loop a file, flat, to read from top to bottom and to change.

``python -m trainers.scripts.grpo`` trains a tiny model on a CPU in a minute or two; ``--help`` lists the flags. What
they leave out (checkpoints, resume, proofs of the weights, alarms) is in :mod:`trainers.trainer`.
"""
