"""How many trainers every job has: a cluster kept full, jobs started early, services first. No Django, no clock."""
