"""Jobs of other operators, as people write them: what `rtj import-job` has to understand."""

from __future__ import annotations

PYTORCH_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: gpt
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: team-a, owner: nlp}
spec:
  nprocPerNode: "8"
  elasticPolicy: {minReplicas: 1, maxReplicas: 4, rdzvBackend: c10d}
  runPolicy:
    cleanPodPolicy: None
    backoffLimit: 4
    ttlSecondsAfterFinished: 600
    schedulingPolicy: {minAvailable: 4}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: &pod
        metadata: {annotations: {sidecar.istio.io/inject: "false"}}
        spec:
          containers:
            - name: pytorch
              image: registry/gpt:1
              command: [torchrun, train.py]
              args: [--output_dir, /data/out, --epochs, "3"]
              env:
                - {name: MASTER_PORT, value: "29500"}
                - {name: HF_HOME, value: /cache}
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts: [{name: data, mountPath: /data}]
          volumes:
            - {name: data, persistentVolumeClaim: {claimName: data}}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template: *pod
"""

TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: bert}
spec:
  runtimeRef: {name: torch-distributed}
  suspend: true
  initializer: {dataset: {storageUri: "hf://org/set"}}
  trainer:
    image: registry/bert:2
    command: [python, -m, bert.train]
    numNodes: 2
    numProcPerNode: 4
    env: [{name: CHECKPOINT_DIR, value: /ckpt}]
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}}
  podTemplateOverrides:
    - targetJobs: [{name: node}]
      spec: {serviceAccountName: trainer}
"""

JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: vit
  labels: {kueue.x-k8s.io/queue-name: gpus, kueue.x-k8s.io/priority-class: high}
spec:
  failurePolicy: {maxRestarts: 7, restartStrategy: Recreate}
  successPolicy: {operator: All}
  network: {enableDNSHostnames: true}
  replicatedJobs:
    - name: driver
      template: {spec: {template: {spec: {containers: [{name: d, image: d}]}}}}
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 4
          completions: 4
          completionMode: Indexed
          backoffLimit: 0
          template:
            spec:
              restartPolicy: Never
              subdomain: vit
              containers:
                - {name: helper, image: helper:1, command: [sleep, inf]}
                - {name: main, image: vit:1, command: [python, vit.py, --ckpt-path=/scratch/ckpt]}
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: small.model}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 60
  podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}
  template:
    spec:
      restartPolicy: Never
      priorityClassName: low
      containers: [{name: train, image: small:1}]
"""

ALL = {"PyTorchJob": PYTORCH_JOB, "TrainJob": TRAIN_JOB, "JobSet": JOB_SET, "Job": JOB}
