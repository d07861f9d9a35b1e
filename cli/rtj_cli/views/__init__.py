"""What is shown of a job, as rows and lines: functions of what the API server said and a time.

Must never ask a cluster, read a clock, or print.
"""
