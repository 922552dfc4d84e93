"""Who is on the GPUs of a host: holders joined to processes, containers, jobs and users."""
