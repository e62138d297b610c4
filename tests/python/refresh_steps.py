"""The steps of a trainer whose weights are known: those of step 0, each element XORed with one number of the step."""
FACTOR = 40503  # odd, so that 65,536 steps have as many numbers, and those of neighbours differ in many bits
INVERSE = pow(FACTOR, -1, 1 << 16)


def name_of(step):
    return f"weight_v{step:06}"


def number_of(name):
    return int(name.removeprefix("weight_v"))


def key_of(step):
    """Return the number of a step, which fits an element of int16."""
    key = step * FACTOR % (1 << 16)
    return key - (1 << 16) if key >= 1 << 15 else key


def step_of(key):
    """Return the step that has a number, modulo 65,536."""
    return key * INVERSE % (1 << 16)
