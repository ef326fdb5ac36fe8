"""Submissions as other systems' guides show them."""

# The sample of the scheduler's guide, as it stands: an image classifier, which is no GAN.
TASK = {
    "name": "ResNet50 Training",
    "required_gpus": 2,
    "min_gpu_memory": 8192,
    "params": {
        "model": "resnet50",
        "dataset": "imagenet",
        "batch_size": "64",
        "learning_rate": "0.001",
        "epochs": "90",
        "optimizer": "sgd",
        "momentum": "0.9",
        "weight_decay": "0.0001",
    },
}
# The sample of the training service's guide, as it stands: a text classifier, with three instances.
JOB = {
    "metadata": {
        "algorithm": "intent-classification",
        "dataset_id": "1",
        "name": "test1",
        "train_data_version_hash": "hashDg==",
        "parameters": {"LR": "4", "EPOCHS": "10", "BATCH_SIZE": "64", "PARALLEL_INSTANCES": "3", "FC_SIZE": "128"},
    }
}
