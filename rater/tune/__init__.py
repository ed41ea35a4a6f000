"""Settings of the machine: read, set, journalled, put back exactly."""
