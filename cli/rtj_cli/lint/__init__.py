"""`rtj lint`: what the API server would say of a manifest, without one.

The schema and the rules are those that the CRD is generated from, so nothing is said twice. Must
never accept what the server refuses: the tests hold both against the same cases.
"""
