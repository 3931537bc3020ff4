"""How training's ops are taken apart for ttnn: those that its library does not have, or not in float32."""
