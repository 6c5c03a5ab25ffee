"""What the stage shows of each kernel of attention: its tensors, the lines that are steps, and what is said of them."""
