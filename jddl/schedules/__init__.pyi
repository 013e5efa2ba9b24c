from jddl.schedules.scaled import scaled as scaled
