"""How a run behaves on more devices than there are: a discrete-event simulation of its flow of data."""
