"""From episodes to advantages to a loss, with every algorithm written as data.

======================  ================================================================================
:mod:`.algorithm`       :class:`Algorithm`: how to sample, score, group, scale, and which loss
:mod:`.presets`         the published algorithms, by name
:mod:`.advantages`      ``normalize`` (numpy) and ``compute_advantages`` (episodes in, one number a turn out)
:mod:`.groups`          statistics of groups
:mod:`.inflation`       Lemma 4.2 of Dr. MAS, measured
:mod:`.scores`          what a turn is worth and what it is compared with, by name
:mod:`.shaping`         length penalties and divergence in the reward; what a run knows of its turns
:mod:`.baselines`       baselines that remember earlier batches
:mod:`.critic_config`   :class:`CriticConfig`: a learned critic as data, without torch
:mod:`.loss_config`     :class:`LossConfig`: the loss as data, without torch
:mod:`.losses`          the loss itself (torch)
:mod:`.diagnostics`     what every run logs about its groups, per agent
======================  ================================================================================

Import from the submodules: nothing is loaded here. Only :mod:`.losses` imports torch.
"""
