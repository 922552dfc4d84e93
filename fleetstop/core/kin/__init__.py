"""Who belongs to a job: matches, their wrappers and workers, fixed by birth and identity."""
