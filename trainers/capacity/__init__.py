"""What a run needs: memory a device, seconds an update; ``llm-train plan``. Nothing here loads a model."""
