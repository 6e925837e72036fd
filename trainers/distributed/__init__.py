"""The same training run on a Ray cluster: environments, samplers and learners in processes of their own.

* :mod:`~trainers.distributed.cluster`: connecting, and what is placed where.
* :mod:`~trainers.distributed.runners`: processes that play episodes, and the jobs that they are given.
* :mod:`~trainers.distributed.engines`: processes that sample, and the policy that asks them.
* :mod:`~trainers.distributed.weight_groups`: how new weights are broadcast to vLLM's engines.
* :mod:`~trainers.distributed.learners`: a learner divided over ranks, and what the trainer asks of it.
* :mod:`~trainers.distributed.fsdp`: how its weights and work are divided.
* :mod:`~trainers.distributed.workers`: all of them as the :class:`trainers.workers.Workers` of a trainer.
"""
