"""`rtj import-job`: other operators' jobs as ResumableTrainingJobs, with what could not be carried.

Must never lose a field without a word: what no reader took is told by its path.
"""
