"""A real Kubernetes cluster of several nodes on one machine, without a container engine.

It exists so that tests and demonstrations meet a real API server, real kubelets and real
containers. It must never touch another cluster, the machine's own containerd or firewall, or
send a packet outside the machine.
"""

from devcluster.cluster import Cluster, ClusterError

__all__ = ["Cluster", "ClusterError"]
