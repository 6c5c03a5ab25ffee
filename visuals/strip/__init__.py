"""The measured strip under a stage: time, memory and limits of the kernel on the stage, as texts and shares."""
